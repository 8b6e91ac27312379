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
  if (attribute.type === "date") return attribute.labels.map(literal);
  return attribute.type === "number" ? attribute.edges.map(String) : ["TRUE", "FALSE"];
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
