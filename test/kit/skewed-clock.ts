// Loaded before a process's own code. It shifts the wall clock by the milliseconds of its query.
const skew = Number(new URL(import.meta.url).search.slice(1));
const RealDate = Date;
const origin = performance.timeOrigin;

globalThis.Date = new Proxy(RealDate, {
  construct: (real, given: unknown[]) => Reflect.construct(real, given.length === 0 ? [real.now() + skew] : given),
  get: (real, name) => (name === 'now' ? () => real.now() + skew : Reflect.get(real, name)),
});
Object.defineProperty(performance, 'timeOrigin', { get: () => origin + skew });
