// Completions for SQL from the catalog: attributes, their values, and the supported keywords.

const OPERATORS = {
  category: ["=", "<>", "IN ("],
  number: [">=", "<", "BETWEEN"],
  boolean: ["IS TRUE", "IS FALSE"],
  date: [">=", "<", "=", "BETWEEN"],
};
const ORDERED = ["=", "<>", ">=", "<", "BETWEEN", "IN ("];
const STARTS = ["NOT", "SELECT", "TRUE"];
const CONNECTIVES = ["AND", "OR", "GROUP BY"];
const KEYWORDS = new Set(
  "SELECT COUNT FROM WHERE GROUP BY AND OR NOT IN IS NULL TRUE FALSE BETWEEN DISTINCT OTHER ORDER TABLE CASE END".split(" "),
);
const TOKEN = /'(?:[^']|'')*'?|"(?:[^"]|"")*"?|[\p{L}_][\p{L}\p{N}_]*|[\d.]+|<>|<=|>=|[^\s]/gu;
const MOST = 40;

/** An attribute's name as SQL wants it. */
export const quoted = (name) =>
  /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) && !KEYWORDS.has(name.toUpperCase()) ? name : `"${name.replaceAll('"', '""')}"`;

export const literal = (text) => `'${text.replaceAll("'", "''")}'`;

const unquoted = (token) => (token.startsWith('"') ? token.slice(1).replace(/"$/, "").replaceAll('""', '"') : token);

/** The constants that an attribute can be compared with. */
export function constants(attribute) {
  if (attribute.type === "category") return [...attribute.values.slice(0, 500).map(literal), ...(attribute.other ? ["'other'"] : [])];
  if (attribute.type === "date") return periods(attribute).map(literal);
  return attribute.type === "number" ? attribute.edges.map(String) : ["TRUE", "FALSE"];
}

const AGAIN = {
  weekday: ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
  month_of_year: ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"],
  hour_of_day: Array.from({ length: 24 }, (_, hour) => String(hour).padStart(2, "0")),
};
const MONTHS = { year: 12, quarter: 3, month: 1 };
const HOURS = { week: 168, day: 24, hour: 1 };
const DAY_MS = 86400e3;
const PRECISION = { year: 4, month: 7, day: 10, hour: 13 };
const MOST_PERIODS = 500;

/** The labels of the periods of a date, which SQL compares it with; the first of them where there are many. */
function periods({ by, from, until }) {
  if (by in AGAIN) return AGAIN[by];
  const moment = (text) => new Date(`${text.slice(0, 10)}T${text.slice(11, 13) || "00"}:00:00Z`);
  const start = moment(from);
  const end = until ? moment(until) : new Date(start);
  if (!until) end.setUTCFullYear(start.getUTCFullYear() + 2);
  const labels = [];
  while (start < end && labels.length < MOST_PERIODS) {
    labels.push(label(by, start));
    if (by in MONTHS) start.setUTCMonth(start.getUTCMonth() + MONTHS[by]);
    else start.setUTCHours(start.getUTCHours() + HOURS[by]);
  }
  return labels;
}

function label(by, start) {
  const text = start.toISOString();
  if (by === "quarter") return `${text.slice(0, 4)}-Q${1 + Math.floor(start.getUTCMonth() / 3)}`;
  if (by !== "week") return text.slice(0, PRECISION[by]);
  const thursday = new Date(start.getTime() + 3 * DAY_MS); // a week belongs to the year of its Thursday
  const week = 1 + Math.floor((thursday - Date.UTC(thursday.getUTCFullYear(), 0, 1)) / (7 * DAY_MS));
  return `${thursday.getUTCFullYear()}-W${String(week).padStart(2, "0")}`;
}

const AGGREGATES = { mode: "MODE(" };

function aggregates(attributes, kinds) {
  const numbers = attributes.some((attribute) => attribute.type === "number");
  return [...(numbers ? ["AVG(", "SUM(", "MEDIAN("] : []), ...kinds.map((kind) => AGGREGATES[kind]).filter(Boolean)];
}

/** What may follow `before`, and how many characters at its end each replaces: {from, options}. */
export function complete(before, attributes, kinds) {
  const tokens = [...before.matchAll(TOKEN)].map((found) => ({ text: found[0], from: found.index }));
  const last = tokens.at(-1);
  const typing = last && last.from + last.text.length === before.length && /^['"\p{L}_\d]/u.test(last.text) && !/^'.*'$/u.test(last.text);
  const prefix = typing ? last.text : "";
  const past = typing ? tokens.slice(0, -1) : tokens;
  const named = (token) => attributes.find((attribute) => attribute.name.toLowerCase() === unquoted(token.text).toLowerCase());
  const subject = past.toReversed().map(named).find(Boolean);
  const previous = past.at(-1)?.text.toUpperCase() ?? "";
  const names = attributes.map((attribute) => quoted(attribute.name));
  const grouping = past.some((token, index) => token.text.toUpperCase() === "BY" && past[index - 1]?.text.toUpperCase() === "GROUP");
  let offered;
  if (grouping) offered = names;
  else if (!previous || ["AND", "OR", "NOT", "WHERE"].includes(previous)) {
    offered = previous === "AND" && past.at(-3)?.text.toUpperCase() === "BETWEEN" && subject ? constants(subject) : [...names, ...STARTS];
  } else if (previous === "SELECT") offered = [...names, "COUNT(*)", ...aggregates(attributes, kinds)];
  else if (subject && ["=", "<>", "<", ">", "<=", ">=", "(", ",", "BETWEEN"].includes(previous)) offered = previous === "(" && past.at(-2)?.text.toUpperCase() !== "IN" ? names : constants(subject);
  else if (previous === "(") offered = names;
  else if (past.length && named(past.at(-1))) offered = [...(subject.ordered ? ORDERED : OPERATORS[subject.type]), ...(subject.missing ? ["IS NULL"] : []), ...CONNECTIVES];
  else if (previous === "IS") offered = [...(subject?.missing ? ["NULL", "NOT NULL"] : []), "TRUE", "FALSE"];
  else offered = past[0].text.toUpperCase() === "SELECT" && !past.some((token) => token.text.toUpperCase() === "WHERE") ? ["WHERE", ...CONNECTIVES] : CONNECTIVES;
  const wanted = prefix.replace(/^['"]/, "").toLowerCase();
  const fits = (option) => option.replace(/^['"]/, "").toLowerCase().startsWith(wanted);
  return {
    from: before.length - prefix.length,
    options: offered.filter((option) => fits(option) && option !== prefix).slice(0, MOST),
  };
}
