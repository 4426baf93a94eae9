/** Icons, drawn as strokes on a grid of 24 by 24. */
const PATHS = {
  home: 'M4 11l8-7 8 7v8a1 1 0 0 1-1 1h-5v-6h-4v6H5a1 1 0 0 1-1-1z',
  chat: 'M5 5h14a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1h-8l-5 4v-4H5a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1z',
  book: 'M5 4h9a3 3 0 0 1 3 3v13H8a3 3 0 0 1-3-3zM5 17a3 3 0 0 1 3-3h9M17 7h2v13h-2',
  bulb: 'M9 18h6M10 21h4M8.5 15a6 6 0 1 1 7 0c-.5.6-.5 1.3-.5 3h-6c0-1.7 0-2.4-.5-3z',
  globe: 'M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM4.5 9.5h15M4.5 14.5h15M12 4c3.5 4 3.5 12 0 16M12 4c-3.5 4-3.5 12 0 16',
  key: 'M8.5 20a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM11.7 12.3L19.5 4.5M16 8l3 3M13.8 10.2l1.7 1.7',
  plug: 'M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4',
  send: 'M20 4L10 14M20 4l-6 16-4-6-6-4z',
  list: 'M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01',
  sliders: 'M4 7h9M17 7h3M4 17h3M11 17h9M13 5v4M7 15v4',
  chart: 'M5 4v15h15M9 16v-4M13 16V8M17 16v-6',
  people:
    'M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM3 20a6 6 0 0 1 12 0M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14.5a6 6 0 0 1 3 5.5',
  scroll: 'M6 4h10a2 2 0 0 1 2 2v14H8a2 2 0 0 1-2-2zM9 8h6M9 12h6M9 16h3',
  layers: 'M12 4l8 4-8 4-8-4zM4 12l8 4 8-4M4 16l8 4 8-4',
  bot: 'M6 9h12a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1v-8a1 1 0 0 1 1-1zM12 5v4M9.5 13.5v1M14.5 13.5v1M12 4h.01',
  user: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM5 20a7 7 0 0 1 14 0',
  plus: 'M12 5v14M5 12h14',
  copy: 'M9 9h10v11H9zM15 9V4H5v11h4',
  check: 'M5 12.5l4.5 4.5L19 7',
  cross: 'M6 6l12 12M18 6L6 18',
  minus: 'M6 12h12',
  chevron: 'M8 10l4 4 4-4',
  right: 'M10 7l5 5-5 5',
  left: 'M14 7l-5 5 5 5',
  more: 'M5 12h.01M12 12h.01M19 12h.01',
  sun: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M5.6 18.4L7 17M17 7l1.4-1.4',
  moon: 'M19 14.5A7.5 7.5 0 0 1 9.5 5a7.5 7.5 0 1 0 9.5 9.5z',
  screen: 'M4 5h16v11H4zM9 20h6M12 16v4',
  out: 'M14 4h5v16h-5M10 8l-4 4 4 4M6 12h9',
  refresh: 'M19 8a8 8 0 1 0 1 5M19 4v4h-4',
  search: 'M11 17a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM15.5 15.5L20 20',
  warning: 'M12 4l9 16H3zM12 10v4M12 17h.01',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5',
  pencil: 'M5 19l1-4L16 5l3 3L9 18z',
  external: 'M13 5h6v6M19 5l-8 8M16 14v5H5V8h5',
  upload: 'M12 15V4M8 8l4-4 4 4M5 15v4h14v-4',
  pause: 'M9 6v12M15 6v12',
  inbox: 'M5 5h14l2 9v5H3v-5zM3 14h5l1.5 2.5h5L16 14h5',
  keyboard: 'M3 7h18v10H3zM7 10.5h.01M10.5 10.5h.01M14 10.5h.01M17 10.5h.01M8 14h8',
  clock: 'M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 8v4.5l3 1.5',
  tag: 'M4 4h8l8 8-8 8-8-8zM8.5 8.5h.01',
  note: 'M5 4h14v10l-6 6H5zM19 14h-6v6',
  info: 'M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 11v5M12 8h.01',
  bell: 'M6 17V11a6 6 0 0 1 12 0v6l1.5 2h-15zM10 21h4',
  down: 'M12 5v14M6 13l6 6 6-6',
  hand: 'M8 12V6a1.5 1.5 0 0 1 3 0v5-6.5a1.5 1.5 0 0 1 3 0V11 6a1.5 1.5 0 0 1 3 0v8a6 6 0 0 1-6 6c-3 0-4.5-1.5-6-4l-1.5-3a1.5 1.5 0 0 1 2.5-1.5z',
  quote: 'M6 7h5v5c0 3-1.5 4.5-4 5M14 7h5v5c0 3-1.5 4.5-4 5',
} as const;

export type IconName = keyof typeof PATHS;

export const Icon = ({ name, size = 18 }: { name: IconName; size?: number }) => (
  <svg
    className="icon"
    width={size}
    height={size}
    viewBox="0 0 24 24"
    fill="none"
    stroke="currentColor"
    strokeWidth={name === 'more' ? 2.8 : 1.7}
    strokeLinecap="round"
    strokeLinejoin="round"
    aria-hidden="true"
  >
    <path d={PATHS[name]} />
  </svg>
);
