import { readFileSync } from 'node:fs';
import type { FirstTurn } from './first-turn.ts';
import type { QuickstartState } from './open.ts';

const isThere = async (url: string): Promise<boolean> => {
  try {
    return (await fetch(url)).ok;
  } catch {
    return false;
  }
};

const curlFor = ({ baseUrl, apiKey }: QuickstartState): string[] => [
  `curl ${baseUrl}/api/v1/chat \\`,
  `  -H 'Authorization: Bearer ${apiKey}' -H 'Content-Type: application/json' \\`,
  `  -d '{"session_id":"me","message":"What does delivery cost?"}'`,
];

const actionWords = (type: string, payload: string): string =>
  type === 'escalate' ? 'asks for a person' : `${type} ${payload}`;

type Opened = { state: QuickstartState; firstTurn: FirstTurn; dir: string; stays: boolean; watch: boolean };

/** The lines that a new user needs next. They list a page only if it responds. */
export const welcome = async ({ state, firstTurn, dir, stays, watch }: Opened): Promise<string[]> => {
  const { baseUrl, dashboardUrl, assistantId, operator } = state;
  const webChat = `${baseUrl}/w/${assistantId}`;
  const [dashboard, openApi, web] = await Promise.all([dashboardUrl, `${baseUrl}/openapi.json`, webChat].map(isThere));
  const actions = firstTurn.suggestedActions.map(
    ({ label, type, payload }) => `[${label}: ${actionWords(type, payload)}]`,
  );
  const exchange = [
    `  visitor    ${firstTurn.question}`,
    `  assistant  ${firstTurn.reply}`,
    ...(actions.length > 0 ? [`             ${actions.join(' ')}`] : []),
  ];
  const ready = `Ready in ${(performance.now() / 1000).toFixed(1)} s.`;
  if (!stays) return ['', ...exchange, '', ready];
  const facts = {
    API: baseUrl,
    ...(state.baseUrls.length > 1 && { 'more APIs': state.baseUrls.slice(1).join(' ') }),
    ...(openApi && { OpenAPI: `${baseUrl}/openapi.json` }),
    ...(dashboard && { dashboard: dashboardUrl }),
    ...(operator && { 'sign in': `${operator.email}  ${operator.password}` }),
    ...(web && { 'web chat': webChat }),
    'API key': state.apiKey,
    channel: `${baseUrl}/api/v1/channels/webhook/${assistantId}`,
    'verify token': state.verifyToken,
    events: `${state.receiverUrl}/received`,
    files: `${dir}/quickstart.json (these facts), ${dir}/logs, ${dir}/data`,
  };
  const width = Math.max(...Object.keys(facts).map(({ length }) => length)) + 2;
  return [
    '',
    ...exchange,
    '',
    ready,
    ...Object.entries(facts).map(([name, value]) => `  ${name.padEnd(width)}${value}`),
    '',
    ...curlFor(state),
    '',
    ...(watch ? ['A saved file restarts the processes that have loaded it.'] : []),
    'Each event is shown here as it arrives. Ctrl-C stops everything; the data stays.',
  ];
};

/** The message if a quickstart is already running. It says where. */
export const refusal = (stateFile: string, pid: number): string => {
  let where = 'it is still starting';
  try {
    where = `it answers at ${(JSON.parse(readFileSync(stateFile, 'utf8')) as QuickstartState).baseUrl}`;
  } catch {
    // The state file is missing until all processes have started.
  }
  return `A quickstart already runs in this clone (pid ${pid}): ${where}. Stop it with Ctrl-C before you start another.`;
};
