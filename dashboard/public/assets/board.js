// The queue board follows the colours chosen in the dashboard. The keys are where Mantine and bull-board keep theirs.
{
  const KEY = 'board-settings';
  const VERSION = 2;
  let chosen = null;
  try {
    chosen = localStorage.getItem('mantine-color-scheme-value');
    if (chosen) {
      const { state, version = VERSION } = JSON.parse(localStorage.getItem(KEY) ?? '{}');
      const theme = chosen === 'auto' ? 'system' : chosen;
      localStorage.setItem(KEY, JSON.stringify({ state: { ...state, theme }, version }));
    }
  } catch {
    // Storage is closed to this page: the system decides.
  }
  const dark = chosen === 'dark' || (chosen !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.body.classList.toggle('dark-mode', dark);
}
