// Command pgx asks with pgx; see test_programs.py. Usage: go run . URL WRONG ROUNDS
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var modes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

func read(given string) any {
	kind, text, _ := strings.Cut(given, ":")
	switch kind {
	case "int":
		n, _ := strconv.Atoi(text)
		return n
	case "float":
		x, _ := strconv.ParseFloat(text, 64)
		return x
	case "bool":
		return text == "True"
	case "date":
		day, _ := time.Parse(time.DateOnly, text)
		return day
	case "list":
		return strings.Split(text, ",")
	}
	return text
}

func written(value any) string {
	switch of := value.(type) {
	case nil:
		return ""
	case time.Time:
		return of.Format(time.DateOnly)
	}
	return fmt.Sprint(value)
}

func lines(rows pgx.Rows, err error) [][]string {
	must(err)
	found := [][]string{}
	for rows.Next() {
		values, err := rows.Values()
		must(err)
		row := []string{}
		for _, value := range values {
			row = append(row, written(value))
		}
		found = append(found, row)
	}
	must(rows.Err())
	return found
}

func words(rows [][]string, n int) string {
	found := []string{}
	for _, row := range rows {
		found = append(found, strings.Join(row[:n], " "))
	}
	return "[" + strings.Join(found, ", ") + "]"
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx, url, wrong := context.Background(), os.Args[1], os.Args[2]
	rounds, _ := strconv.Atoi(os.Args[3])
	asked := [][]string{}
	for given := bufio.NewScanner(os.Stdin); given.Scan(); {
		asked = append(asked, strings.Split(given.Text(), "\t"))
	}
	groups := asked[0][1]
	round := 0
	for _, mode := range modes {
		c, err := pgx.Connect(ctx, url+"?default_query_exec_mode="+mode)
		must(err)
		for range rounds {
			round++
			for _, one := range asked {
				values := []any{}
				for _, given := range one[2:] {
					values = append(values, read(given))
				}
				for _, row := range lines(c.Query(ctx, one[1], values...)) {
					fmt.Printf("%s %d\t%s\n", one[0], round, strings.Join(row, "\t"))
				}
			}
		}
		must(c.Close(ctx))
	}
	c, err := pgx.Connect(ctx, url)
	must(err)
	tables := "table_schema = 'public' AND table_name LIKE 'ord%'"
	fmt.Println("tables\t" + words(lines(c.Query(ctx, "SELECT table_name FROM information_schema.tables WHERE "+tables)), 1))
	fmt.Println("columns\t" + words(lines(c.Query(ctx,
		"SELECT column_name, udt_name FROM information_schema.columns WHERE "+tables+" ORDER BY ordinal_position")), 2))
	tx, err := c.Begin(ctx)
	must(err)
	saved, err := tx.Begin(ctx)
	must(err)
	var fault *pgconn.PgError
	if _, err = saved.Exec(ctx, wrong); errors.As(err, &fault) {
		fmt.Printf("wrong\t%s %d\n", fault.Code, fault.Position)
	}
	if _, err = saved.Exec(ctx, groups); errors.As(err, &fault) {
		fmt.Printf("failed\t%s\n", fault.Code)
	}
	must(saved.Rollback(ctx))
	fmt.Println("in parts\t" + words(lines(tx.Query(ctx, groups)), 1))
	must(tx.Commit(ctx))
	batch := &pgx.Batch{}
	for range rounds {
		batch.Queue(groups)
	}
	results := c.SendBatch(ctx, batch)
	for range rounds {
		if len(lines(results.Query())) != 3 {
			panic("a batch has other rows")
		}
	}
	must(results.Close())
	must(c.Close(ctx))
}
