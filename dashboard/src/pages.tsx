import { lazy, Suspense, useEffect } from 'react';
import { Redirect, Route, Switch } from 'wouter';
import { rememberedAssistant } from './assistant.ts';
import { NoAssistant } from './frame/no-assistant.tsx';
import { NotForYou, NotHere } from './frame/not-here.tsx';
import { Loading } from './parts/states.tsx';
import type { Me } from './types.ts';

/** Each page is a separate file that is loaded on demand. */
const FILES = {
  inbox: () => import('./pages/inbox/inbox.tsx'),
  overview: () => import('./pages/overview/overview.tsx'),
  tryIt: () => import('./pages/try-it/chat.tsx'),
  knowledge: () => import('./pages/knowledge/list.tsx'),
  sources: () => import('./pages/sources/list.tsx'),
  source: () => import('./pages/sources/source.tsx'),
  learn: () => import('./pages/misses/learn.tsx'),
  evaluate: () => import('./pages/evaluation/list.tsx'),
  questions: () => import('./pages/evaluation/questions.tsx'),
  evaluation: () => import('./pages/evaluation/results.tsx'),
  versions: () => import('./pages/versions/versions.tsx'),
  keys: () => import('./pages/keys/list.tsx'),
  channel: () => import('./pages/channel/channel.tsx'),
  web: () => import('./pages/web/web.tsx'),
  webhooks: () => import('./pages/webhooks/list.tsx'),
  endpoint: () => import('./pages/webhooks/endpoint.tsx'),
  deliveries: () => import('./pages/deliveries/list.tsx'),
  delivery: () => import('./pages/deliveries/delivery.tsx'),
  alerts: () => import('./pages/alerts.tsx'),
  onCall: () => import('./pages/on-call/on-call.tsx'),
  usage: () => import('./pages/usage.tsx'),
  settings: () => import('./pages/assistants/settings.tsx'),
  assistants: () => import('./pages/assistants/list.tsx'),
  operators: () => import('./pages/operators/list.tsx'),
  audit: () => import('./pages/audit/list.tsx'),
  account: () => import('./pages/account.tsx'),
};

const Inbox = lazy(FILES.inbox);
const Overview = lazy(FILES.overview);
const TryIt = lazy(FILES.tryIt);
const Knowledge = lazy(FILES.knowledge);
const Sources = lazy(FILES.sources);
const Source = lazy(FILES.source);
const Learn = lazy(FILES.learn);
const Evaluate = lazy(FILES.evaluate);
const Questions = lazy(FILES.questions);
const Evaluation = lazy(FILES.evaluation);
const Versions = lazy(FILES.versions);
const Keys = lazy(FILES.keys);
const Channel = lazy(FILES.channel);
const Web = lazy(FILES.web);
const Webhooks = lazy(FILES.webhooks);
const Endpoint = lazy(FILES.endpoint);
const Deliveries = lazy(FILES.deliveries);
const Delivery = lazy(FILES.delivery);
const Alerts = lazy(FILES.alerts);
const OnCall = lazy(FILES.onCall);
const Usage = lazy(FILES.usage);
const Settings = lazy(FILES.settings);
const Assistants = lazy(FILES.assistants);
const Operators = lazy(FILES.operators);
const Audit = lazy(FILES.audit);
const Account = lazy(FILES.account);

const NONE = {};
const AHEAD_AFTER_MS = 1_500;

/** Loads the files of all other pages after the first page, so that navigation is immediate. */
const useFetchedAhead = (files: Partial<typeof FILES>): void =>
  useEffect(() => {
    const timer = window.setTimeout(() => {
      for (const file of Object.values(files)) void file().catch(() => undefined);
    }, AHEAD_AFTER_MS);
    return () => window.clearTimeout(timer);
  }, [files]);

const homeOf = ({ assistants, role }: Me): string => {
  if (role === 'agent') return assistants.length > 0 ? '/inbox' : '/no-assistant';
  const known = rememberedAssistant();
  const one = assistants.find(({ assistantId }) => assistantId === known) ?? assistants[0];
  return one ? `/assistants/${one.assistantId}/overview` : '/assistants';
};

/**
 * True if this operator may open the assistant. Owners may open all assistants, even one that was just created in
 * another window.
 */
const mayTry = ({ role, assistants }: Me, id: string): boolean =>
  role === 'owner' || assistants.some(({ assistantId }) => assistantId === id);

const Elsewhere = ({ me }: { me: Me }) => (me.assistants.length === 0 ? <NoAssistant /> : <NotHere />);

/** The pages that agents can open too. The server refuses agents' requests for all other pages. */
const ForEveryone = ({ me }: { me: Me }) => (
  <Switch>
    {['/', '/sign-in'].map((path) => (
      <Route key={path} path={path}>
        <Redirect to={homeOf(me)} replace />
      </Route>
    ))}
    <Route path="/inbox/:conversationId?">
      {({ conversationId = null }) =>
        me.role === 'agent' && me.assistants.length === 0 ? <NoAssistant /> : <Inbox me={me} id={conversationId} />
      }
    </Route>
    <Route path="/account">
      <Account me={me} />
    </Route>
    <Route path="/no-assistant">{me.assistants.length === 0 ? <NoAssistant /> : <Redirect to="/" replace />}</Route>
    <Route path="/assistants/:id/try">
      {({ id }) => (mayTry(me, id) ? <TryIt key={id} id={id} /> : <Elsewhere me={me} />)}
    </Route>
    <Route>{me.role === 'owner' ? <ForOwners me={me} /> : <NotForYou />}</Route>
  </Switch>
);

const ForOwners = ({ me }: { me: Me }) => (
  <Switch>
    <Route path="/assistants">
      <Assistants />
    </Route>
    <Route path="/operators">
      <Operators me={me} />
    </Route>
    <Route path="/alerts">
      <Alerts me={me} />
    </Route>
    <Route path="/on-call">
      <OnCall me={me} />
    </Route>
    <Route path="/audit">
      <Audit />
    </Route>
    <Route path="/assistants/:id">{({ id }) => <Redirect to={`/assistants/${id}/overview`} replace />}</Route>
    <Route path="/assistants/:id/overview">{({ id }) => <Overview key={id} id={id} me={me} />}</Route>
    <Route path="/assistants/:id/knowledge">{({ id }) => <Knowledge key={id} id={id} />}</Route>
    <Route path="/assistants/:id/sources">{({ id }) => <Sources key={id} id={id} />}</Route>
    <Route path="/assistants/:id/sources/:sourceId">
      {({ id, sourceId }) => <Source key={sourceId} id={id} sourceId={sourceId} />}
    </Route>
    <Route path="/assistants/:id/learn">{({ id }) => <Learn key={id} id={id} />}</Route>
    <Route path="/assistants/:id/evaluate">{({ id }) => <Evaluate key={id} id={id} />}</Route>
    <Route path="/assistants/:id/evaluate/sets/:setId">
      {({ id, setId }) => <Questions key={setId} id={id} setId={setId} />}
    </Route>
    <Route path="/assistants/:id/evaluate/:evaluationId">
      {({ id, evaluationId }) => <Evaluation key={evaluationId} id={id} evaluationId={evaluationId} />}
    </Route>
    <Route path="/assistants/:id/versions">{({ id }) => <Versions key={id} id={id} />}</Route>
    <Route path="/assistants/:id/keys">{({ id }) => <Keys key={id} id={id} />}</Route>
    <Route path="/assistants/:id/channel">{({ id }) => <Channel key={id} id={id} />}</Route>
    <Route path="/assistants/:id/web">{({ id }) => <Web key={id} id={id} />}</Route>
    <Route path="/assistants/:id/webhooks">{({ id }) => <Webhooks key={id} id={id} />}</Route>
    <Route path="/assistants/:id/webhooks/:endpointId">
      {({ id, endpointId }) => <Endpoint key={endpointId} id={id} endpointId={endpointId} />}
    </Route>
    <Route path="/assistants/:id/deliveries">{({ id }) => <Deliveries key={id} id={id} />}</Route>
    <Route path="/assistants/:id/deliveries/:deliveryId">
      {({ id, deliveryId }) => <Delivery key={deliveryId} id={id} deliveryId={decodeURIComponent(deliveryId)} />}
    </Route>
    <Route path="/assistants/:id/usage">{({ id }) => <Usage key={id} id={id} />}</Route>
    <Route path="/assistants/:id/settings">{({ id }) => <Settings key={id} id={id} />}</Route>
    <Route component={NotHere} />
  </Switch>
);

export const Pages = ({ me }: { me: Me }) => {
  useFetchedAhead(me.role === 'owner' ? FILES : NONE);
  return (
    <Suspense fallback={<Loading rows={5} />}>
      <ForEveryone me={me} />
    </Suspense>
  );
};
