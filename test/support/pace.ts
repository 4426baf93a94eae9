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

/** `ms` for a machine that is as slow, or as busy with other work, as this one is now. Never less than `ms`. */
export const atPace = (ms: number): number => {
  const times = Array.from({ length: TRIES }, () => {
    const since = performance.now();
    aPieceOfWork();
    return performance.now() - since;
  });
  return ms * Math.max(1, ...times.map((took) => took / USUAL_MS));
};
