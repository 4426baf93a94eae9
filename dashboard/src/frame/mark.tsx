export const Mark = () => (
  <span className="mark">
    <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#4a56d0" />
      <path
        d="M11.5 8h9a2.5 2.5 0 0 1 2.5 2.5v6a2.5 2.5 0 0 1-2.5 2.5H16l-4.6 4.3c-.5.5-1.4.1-1.4-.6V19a2.2 2.2 0 0 1-1-2v-6.5A2.5 2.5 0 0 1 11.5 8z"
        fill="#fff"
      />
    </svg>
    Parley
  </span>
);
