/** Events that show that a person uses the page. Polling alone does not keep the session alive. */
const ACTS = ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchstart'] as const;
/** A request counts as caused by the person if it is sent within this time after such an event. */
const LASTS_MS = 60_000;

let lastAct = 0;

export const watchForActs = (): void => {
  const note = (): void => {
    lastAct = Date.now();
  };
  note(); // opening the page counts
  for (const act of ACTS) addEventListener(act, note, { capture: true, passive: true });
};

export const isAttended = (): boolean => Date.now() - lastAct < LASTS_MS;
