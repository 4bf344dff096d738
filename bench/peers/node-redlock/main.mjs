// node-redlock, with asynchronous functions. "run" says what the arguments and the lines of input mean.
//
// As its README says: `redlock.using`, which extends the lock by itself, on one ioredis client, with the default
// settings: 10 more tries, 200 ms apart and up to 200 ms more or less. When they are used up, the contender tries again.
import fs from "node:fs";
import readline from "node:readline";
import Redis from "ioredis";
import Redlock from "redlock";

const GRACE_MS = 2000;
const [kind, url, lease, count, seconds] = process.argv.slice(2);
const redis = new Redis(url);
const redlock = new Redlock([redis]);
redlock.on("error", () => {}); // each try that finds the lock taken
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function contend(name, file, crowd, number) {
  const bytes = Buffer.alloc(8);
  while (!crowd.over) {
    let held = false;
    try {
      await redlock.using([name], Number(lease), async () => {
        held = true;
        if (crowd.over) return;
        if (file !== undefined) {
          fs.readSync(file, bytes, 0, 8, 0);
          await null; // where another holder in this process would come between
          bytes.writeBigUInt64LE(bytes.readBigUInt64LE() + 1n);
          fs.writeSync(file, bytes, 0, 8, 0);
        }
        crowd.acquires[number]++;
      });
    } catch (error) {
      if (held) throw error;
      crowd.gaveUp++;
    }
  }
  crowd.ended++;
}

// Gives up when none of them has ended for GRACE_MS. Returns how many have not.
async function awaitEnd(crowd, contenders) {
  const everybody = Promise.all(contenders);
  for (let before = -1; before < crowd.ended && crowd.ended < contenders.length; ) {
    before = crowd.ended;
    await Promise.race([everybody, sleep(GRACE_MS)]);
  }
  return contenders.length - crowd.ended;
}

async function crowd(name, path) {
  const file = path === undefined ? undefined : fs.openSync(path, "r+");
  const all = { over: false, ended: 0, gaveUp: 0, acquires: new Array(Number(count)).fill(0) };
  const start = performance.now();
  const contenders = all.acquires.map((_, i) => contend(path ? name : `${name}:${i}`, file, all, i));
  await sleep(Number(seconds) * 1000);
  all.over = true;
  const taken = (performance.now() - start) / 1000;
  const stuck = await awaitEnd(all, contenders);
  console.log(JSON.stringify({ seconds: taken, gave_up: all.gaveUp, stuck, acquires: all.acquires }));
  if (stuck) process.exit(0);
  if (file !== undefined) fs.closeSync(file);
}

// Holding means being inside of `using`: its routine waits for a promise that the release resolves.
let letGo;
let held = [];

async function take(name) {
  const gone = new Promise((resolve) => (letGo = resolve));
  const keep = (one) =>
    new Promise((resolve) => {
      const again = () =>
        redlock.using([one], Number(lease), async () => {
          resolve();
          await gone;
        }).catch(again);
      held.push(again());
    });
  await Promise.all(Array.from({ length: Number(count) }, (_, i) => keep(`${name}:${i}`)));
  console.log(String(process.hrtime.bigint()));
}

async function release() {
  const called = process.hrtime.bigint();
  letGo();
  await Promise.all(held);
  held = [];
  console.log(String(called));
}

await redis.ping();
console.log("ready");
let odd = true;
for await (const line of readline.createInterface({ input: process.stdin })) {
  if (kind === "crowd") await crowd(...line.split(" "));
  else if (odd) await take(line);
  else await release();
  odd = !odd;
}
process.exit(0);
