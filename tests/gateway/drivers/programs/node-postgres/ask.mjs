// Asks with node-postgres; see test_programs.py. Usage: node ask.mjs URL WRONG ROUNDS
import { readFileSync } from 'node:fs'
import pg from 'pg'

const [url, wrong, rounds] = process.argv.slice(2)
const read = {
  int: Number, float: Number, bool: value => value === 'True', list: value => value.split(','),
  str: String, date: String, Decimal: String,
}
const words = rows => `[${rows.map(row => row.join(' ')).join(', ')}]`
const print = (name, ...values) => console.log([name, ...values.map(v => v ?? '')].join('\t'))

pg.types.setTypeParser(pg.types.builtins.DATE, String)
const client = new pg.Client(url)
await client.connect()
const ask = async (text, values, more) => (await client.query({ text, values, rowMode: 'array', ...more })).rows
let groups
for (const line of readFileSync(0, 'utf8').trim().split('\n')) {
  const [name, text, ...given] = line.split('\t')
  if (name === 'groups') groups = text
  const values = given.map(one => read[one.split(':')[0]](one.slice(one.indexOf(':') + 1)))
  for (let round = 1; round <= rounds; round++) {
    for (const row of await ask(text, values, { name })) print(`${name} ${round}`, ...row)
  }
}
const tables = "table_schema = 'public' AND table_name LIKE 'ord%'"
print('tables', words(await ask(`SELECT table_name FROM information_schema.tables WHERE ${tables}`)))
print('columns', words(await ask(
  `SELECT column_name, udt_name FROM information_schema.columns WHERE ${tables} ORDER BY ordinal_position`)))
await client.query('BEGIN; SAVEPOINT saved')
await client.query(wrong).catch(error => print('wrong', `${error.code} ${error.position}`))
await client.query(groups).catch(error => print('failed', error.code))
await client.query('ROLLBACK TO SAVEPOINT saved')
print('in parts', words((await ask(groups)).map(row => row.slice(0, 1))))
await client.query('COMMIT')
await client.end()
