// What the programs for Node's clients share: names, waiting, and the line that each check prints.
import { randomBytes } from 'node:crypto'

export const limit = 60_000
export const parts = 3
export const fresh = word => `${word}-${randomBytes(4).toString('hex')}`
// txnId's prefix chooses the commit protocol of brokers that have several.
export const txnId = () => (process.env.TXN_PREFIX ?? '') + fresh('t')
export const words = (prefix, n) => Array.from({ length: n }, (_, i) => prefix + String(i).padStart(5, '0'))
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

export async function until (what, condition) {
  for (const end = Date.now() + limit; !(await condition()); await sleep(50)) {
    if (Date.now() > end) throw new Error(`${what}: not within a minute`)
  }
}

export function same (got, want) {
  const [a, b] = [[...got].sort(), [...want].sort()]
  if (a.length !== b.length || a.some((v, i) => v !== b[i])) throw new Error(`got ${a.length} records (${a.slice(0, 3)}…), want ${b.length} (${b.slice(0, 3)}…)`)
}

// run runs the checks one after the other; one that takes longer than three minutes has failed. A machine too busy to keep its leaders may
// fail a check that is right, so each gets a second try, and the line says so.
export async function run (checks) {
  const only = process.argv.slice(3)
  for (const [name, check] of Object.entries(checks)) {
    if (only.length > 0 && !only.includes(name)) continue
    const first = await attempt(check)
    const error = first && await attempt(check)
    console.log(error ? 'FAIL' : 'PASS', name, error || (first && 'at the second try: ' + first))
  }
  process.exit(0)
}

async function attempt (check) {
  try {
    await Promise.race([check(), sleep(3 * limit).then(() => { throw new Error('hangs') })])
    return ''
  } catch (e) {
    console.error(e)
    return [e?.message ?? e, ...(e?.errors ?? []).map(x => x.message)].join('; ').replaceAll('\n', ' ') || 'failed'
  }
}
