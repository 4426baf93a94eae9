/** What the work below takes on an idle core of the machines that the limits of the tests were measured on. */
const USUAL_MS = 10;
const TRIES = 3;

const aPieceOfWork = (): void => {
  const rows = Array.from({ length: 6_000 }, (_, number) => ({ number, text: `row ${(number * 7_919) % 6_007}` }));
  for (let round = 0; round < 3; round += 1) {
    (JSON.parse(JSON.stringify(rows)) as typeof rows).sort((a, b) => (a.text < b.text ? -1 : 1));
  }
};

aPieceOfWork(); // The first run is slower, because its code is not compiled yet.

/** Concurrent tests share a measurement, because it holds the event loop. */
const VALID_MS = 1_000;
let measured = { at: Number.NEGATIVE_INFINITY, pace: 1 };

const timeOf = (work: () => void): number => {
  const since = performance.now();
  work();
  return performance.now() - since;
};

/** `ms` for a machine that is as slow, or as busy with other work, as this one is now. Never less than `ms`. */
export const atPace = (ms: number): number => {
  if (performance.now() - measured.at > VALID_MS) {
    const times = Array.from({ length: TRIES }, () => timeOf(aPieceOfWork));
    measured = { at: performance.now(), pace: Math.max(1, ...times.map((took) => took / USUAL_MS)) };
  }
  return ms * measured.pace;
};
