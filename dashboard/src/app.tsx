import { Center, Loader } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense, useEffect, useRef } from 'react';
import { Redirect, Route, Switch } from 'wouter';
import { Boundary } from './frame/boundary.tsx';
import { Shell } from './frame/shell.tsx';
import { SignIn } from './frame/sign-in.tsx';
import { Alerts } from './live/alerts.ts';
import { LiveUpdates } from './live/live.tsx';
import { Pages } from './pages.tsx';
import { Failure } from './parts/states.tsx';
import { LEFT, useSession } from './query.ts';

const Welcome = lazy(() => import('./pages/welcome.tsx'));

const Waiting = () => (
  <Center mih="100dvh">
    <Loader size="sm" aria-label="Loading" />
  </Center>
);

/** Shows the sign-in instead of the requested page until an operator has signed in. */
const ForOperators = () => {
  const session = useSession();
  const client = useQueryClient();
  const wasIn = useRef(false);
  useEffect(() => {
    if (session.data) wasIn.current = true;
  }, [session.data]);
  if (session.data === null) return <SignIn ended={wasIn.current && !client.getQueryData([LEFT])} />;
  if (session.data === undefined) {
    return session.error ? <Failure problem={session.error} retry={() => void session.refetch()} /> : <Waiting />;
  }
  return (
    <LiveUpdates>
      <Alerts me={session.data} />
      <Shell me={session.data}>
        <Pages me={session.data} />
      </Shell>
    </LiveUpdates>
  );
};

export const App = () => (
  <Boundary>
    <Suspense fallback={<Waiting />}>
      <Switch>
        <Route path="/welcome">
          <Welcome />
        </Route>
        <Route path="/index.html">
          <Redirect to="/" replace />
        </Route>
        <Route>
          <ForOperators />
        </Route>
      </Switch>
    </Suspense>
  </Boundary>
);
