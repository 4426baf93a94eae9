import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';
import { compressed, firstLoadBudget } from './build/budget.ts';

const API = process.env.PARLEY_API ?? 'http://127.0.0.1:3000';

export default defineConfig(({ command }) => ({
  root: import.meta.dirname,
  base: '/operator/',
  plugins: [react(), firstLoadBudget(), compressed()],
  // The server puts another nonce into every answer; see src/api/operator-routes.ts.
  ...(command === 'build' && { html: { cspNonce: '__CSP_NONCE__' } }),
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    // The pages' own sheets are small; one sheet is there before the first paint of any of them.
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    port: 5173,
    proxy: {
      '/operator/v1': API,
      '/operator/queues': API,
      '/openapi.json': API,
      '/docs': API,
      '/widget': API,
      '/w/': API,
    },
  },
}));
