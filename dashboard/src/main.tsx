import '@mantine/core/styles.layer.css';
import '@mantine/notifications/styles.layer.css';
import './styles/base.css';
import './styles/frame.css';
import './styles/card.css';
import './styles/row.css';
import './styles/part.css';
import './styles/delivery.css';
import './styles/page.css';
import './styles/inbox.css';
import { MantineProvider } from '@mantine/core';
import { Notifications } from '@mantine/notifications';
import { QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Router } from 'wouter';
import { App } from './app.tsx';
import { watchForActs } from './attended.ts';
import { createQueryClient } from './query.ts';
import { cssVariables, theme } from './theme.ts';

type Rules = Record<'createHTML' | 'createScriptURL', (text: string) => string | null>;
const { trustedTypes } = window as { trustedTypes?: { createPolicy: (name: 'default', rules: Rules) => unknown } };
// The page's policy lets no text become markup or a script, except these: libraries set style sheets as if they were markup,
// and the preview loads the widget.
trustedTypes?.createPolicy('default', {
  createHTML: (text) => (text.includes('<') ? null : text),
  createScriptURL: (address) => (address === '/widget.js' ? address : null),
});

watchForActs();

const nonce = document.querySelector<HTMLMetaElement>('meta[property=csp-nonce]')?.nonce ?? '';
// Mantine's scroll lock inserts a <style> element and reads the nonce from this variable.
Object.assign(globalThis, { __webpack_nonce__: nonce });

const root = document.getElementById('root');
if (!root) throw new Error('the page has no #root');

createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={createQueryClient()}>
      <MantineProvider
        theme={theme}
        defaultColorScheme="auto"
        cssVariablesResolver={cssVariables}
        getStyleNonce={() => nonce}
      >
        <Notifications position="bottom-right" limit={3} />
        <Router base="/operator">
          <App />
        </Router>
      </MantineProvider>
    </QueryClientProvider>
  </StrictMode>,
);
