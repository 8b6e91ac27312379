import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.StringJoiner;
import java.util.stream.IntStream;
import org.postgresql.PGConnection;
import org.postgresql.jdbc.PreferQueryMode;
import org.postgresql.util.PSQLException;

/** Asks with pgjdbc; see test_programs.py. Usage: java -cp postgresql.jar Jdbc.java URL WRONG ROUNDS */
public class Jdbc {
    static String line(ResultSet rows, int... places) throws SQLException {
        StringJoiner values = new StringJoiner("\t");
        for (int place : places) values.add(rows.getObject(place) == null ? "" : rows.getObject(place).toString());
        return values.toString();
    }

    static int[] all(ResultSet rows) throws SQLException {
        return IntStream.rangeClosed(1, rows.getMetaData().getColumnCount()).toArray();
    }

    static void bind(Connection connection, PreparedStatement statement, int place, String given) throws SQLException {
        String kind = given.split(":", 2)[0], value = given.split(":", 2)[1];
        switch (kind) {
            case "int" -> statement.setInt(place, Integer.parseInt(value));
            case "float" -> statement.setDouble(place, Double.parseDouble(value));
            case "Decimal" -> statement.setBigDecimal(place, new BigDecimal(value));
            case "bool" -> statement.setBoolean(place, Boolean.parseBoolean(value));
            case "date" -> { // the old class is sent with a zone, and without a type
                boolean isSimple = connection.unwrap(PGConnection.class).getPreferQueryMode() == PreferQueryMode.SIMPLE;
                if (place == 1 && !isSimple) statement.setDate(place, Date.valueOf(value));
                else statement.setObject(place, LocalDate.parse(value));
            }
            case "list" -> statement.setArray(place, connection.createArrayOf("text", value.split(",")));
            default -> statement.setString(place, value);
        }
    }

    static List<String> names(ResultSet rows, String... columns) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            StringJoiner words = new StringJoiner(" ");
            for (String column : columns) words.add(rows.getString(column));
            found.add(words.toString());
        }
        return found;
    }

    static int position(SQLException error) {
        return ((PSQLException) error).getServerErrorMessage().getPosition();
    }

    public static void main(String[] arguments) throws Exception {
        String wrong = arguments[1], groups = null;
        try (Connection c = DriverManager.getConnection(arguments[0])) {
            for (Scanner given = new Scanner(System.in, "UTF-8"); given.hasNextLine(); ) {
                String[] asked = given.nextLine().split("\t");
                if (asked[0].equals("groups")) groups = asked[1];
                PreparedStatement statement = c.prepareStatement(asked[1]);
                for (int round = 1; round <= Integer.parseInt(arguments[2]); round++) {
                    for (int at = 2; at < asked.length; at++) bind(c, statement, at - 1, asked[at]);
                    ResultSet rows = statement.executeQuery();
                    while (rows.next()) System.out.println(asked[0] + " " + round + "\t" + line(rows, all(rows)));
                }
            }
            DatabaseMetaData about = c.getMetaData();
            System.out.println("tables\t" + names(about.getTables(null, "public", "ord%", new String[] {"TABLE"}), "TABLE_NAME"));
            System.out.println("columns\t" + names(about.getColumns(null, "public", "orders", "%"), "COLUMN_NAME", "TYPE_NAME"));
            System.out.println("keys\t" + names(about.getPrimaryKeys(null, "public", "orders"), "COLUMN_NAME"));
            System.out.println("types\t" + names(about.getTypeInfo(), "TYPE_NAME").containsAll(List.of("text", "int8", "float8", "bool", "date")));
            c.setAutoCommit(false);
            Savepoint saved = c.setSavepoint();
            try {
                c.createStatement().executeQuery(wrong);
            } catch (SQLException error) {
                System.out.println("wrong\t" + error.getSQLState() + " " + position(error));
            }
            try {
                c.createStatement().executeQuery(groups);
            } catch (SQLException error) {
                System.out.println("failed\t" + error.getSQLState());
            }
            c.rollback(saved);
            Statement few = c.createStatement();
            few.setFetchSize(2);
            System.out.println("in parts\t" + names(few.executeQuery(groups), "city"));
            c.commit();
        }
    }
}
