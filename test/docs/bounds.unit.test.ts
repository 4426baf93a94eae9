import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { apiDocument } from '../support/validate-response.ts';

// Every list that a caller sends or gets has a bound. A new one says here what bounds it.

type Schema = {
  $ref?: string;
  type?: string;
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
};
type Content = { content?: Record<string, { schema: Schema }> };
type Described = {
  operationId: string;
  parameters?: { name: string }[];
  requestBody?: Content;
  responses: Record<string, Content>;
};

/** What bounds lists without pages: a constant of docs/limits.md, or words. */
const BOUND_BY: Record<string, string> = {
  'getTurn.sources': 'PASSAGES_MAX',
  'getSession.assistants': 'people make assistants',
  'lookForSession.session.assistants': 'people make assistants',
  'listAssistants.assistants': 'people make assistants',
  'listOperators.operators': 'people invite operators',
  'listAgents.agents': 'people invite operators',
  'exportConversation.readPositions': 'people invite operators',
  'getOverview.unhealthy': 'MAX_ENDPOINTS',
  'getOverview.figures.slots': 'the days of the period',
  'getQueues.queues': 'one for each queue',
  'getQueues.queues[].minutes': 'MINUTES_KEPT',
  'getQueues.queues[].workers': 'LISTED_MAX',
  'getQueues.problems': 'two for each queue',
  'getQueues.alerts': 'the newest 50',
  'findWork.work': 'TOLD_MAX',
  'getUsage.days': 'DAYS_MAX',
  'getUsage.keys': 'KEYS_MAX',
  'getLimits.keys': 'KEYS_MAX',
  'listKnowledge.entries': 'MAX_KNOWLEDGE',
  'getDraft.draft.settings': 'one for each setting',
  'getDraft.draft.sources': 'STORED_MAX',
  'getDraft.draft.entries': 'the newest 100',
  'listVersions.versions': 'VERSIONS_MAX',
  'listKnowledgeConflicts.conflicts': 'the first 100',
  'listSources.sources': 'SOURCES_MAX',
  'listMisses.misses': 'the 200 asked most often',
  'listMisses.misses[].examples': 'five of each group',
  'exportConversation.misses': 'sent as they are read',
  'exportConversation.misses[].examples': 'five of each group',
  'exportConversation.notes': 'NOTES_MAX',
  'exportConversation.messages': 'sent as they are read',
  'exportConversation.messages[].sources': 'PASSAGES_MAX',
  'exportConversation.messages[].suggestedActions': 'a few of each message',
  'exportConversation.conversation.tags': 'MAX_TAGS',
  'exportConversation.deliveries': 'sent as they are read',
  'listApiKeys.keys': 'KEYS_MAX',
  'listChannelCalls.calls': 'the last 20',
  'listEndpoints.endpoints': 'MAX_ENDPOINTS',
  'listEndpoints.endpoints[].headers': 'OWN_HEADERS_MAX',
  'getEndpoint.headers': 'OWN_HEADERS_MAX',
  'listConversationEvents.events': 'LIST_MAX',
  'listConversationEvents.events[].deliveries': 'LIST_MAX',
  'listRecoveries.recoveries': 'the last 50',
  'getDelivery.test.checks': 'one for each check',
  'getTurnWay.events': 'LIST_MAX',
  'getTurnWay.events[].deliveries': 'LIST_MAX',
  'listQuestionSets.sets': 'SETS_MAX',
  'getQuestionSet.cases': 'CASES_MAX',
  'exportConversation.questions': 'sent as they are read',
  'listEvaluations.evaluations': 'the last 30',
  'exportConversation.evaluations': 'sent as they are read',
  'readWebMessages.messages': 'two for each of 50 numbers',
  'readWebMessages.messages[].suggestedActions': 'a few of each message',
  'listTags.tags': 'as many as a request may set',
  'listCannedReplies.cannedReplies': 'CANNED_REPLIES_MAX',
  'listKnowledge.entries[].actions': 'as many as a request may set',
  'listOperatorTokens.tokens': 'TOKENS_MAX',
};

const { schemas } = (apiDocument().document as unknown as { components: { schemas: Record<string, Schema> } })
  .components;
const resolved = (schema: Schema): Schema =>
  schema.$ref ? (schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {}) : schema;

/** The lists in a schema that have no most, by their path. `of`: which lists count. */
const listsIn = (given: Schema, path: string, of: (items: Schema) => boolean, depth = 0): string[] => {
  const { type, maxItems, items, properties = {}, anyOf = [], oneOf = [], allOf = [] } = resolved(given);
  if (depth > 20) return [];
  const inner = (schema: Schema, to: string) => listsIn(schema, to, of, depth + 1);
  return [
    ...(type === 'array' && maxItems === undefined && of(resolved(items ?? {})) ? [path] : []),
    ...(items ? inner(items, `${path}[]`) : []),
    ...Object.entries(properties).flatMap(([name, one]) => inner(one, `${path}.${name}`)),
    ...[...anyOf, ...oneOf, ...allOf].flatMap((one) => inner(one, path)),
  ];
};

const operations = apiDocument().operations.map(({ method, operation }) => ({
  method,
  ...(operation as unknown as Described),
}));
const schemasOf = ({ content = {} }: Content): Schema[] => Object.values(content).map(({ schema }) => schema);

test('every list in the body of a request has a most', () => {
  const found = operations.flatMap(({ operationId, requestBody = {} }) =>
    schemasOf(requestBody).flatMap((one) => listsIn(one, operationId, () => true)),
  );

  expect(found).toEqual([]);
});

test('every list of objects in an answer has pages or another bound', () => {
  const whole = operations.filter(
    ({ method, parameters = [] }) => method === 'get' && !parameters.some(({ name }) => name === 'limit'),
  );
  const found = whole.flatMap(({ operationId, responses }) =>
    schemasOf(responses[200] ?? {}).flatMap((one) => listsIn(one, operationId, ({ type }) => type !== 'string')),
  );

  expect([...new Set(found)].toSorted()).toEqual(Object.keys(BOUND_BY).toSorted());
});

test('the bounds that have a name are in docs/limits.md', () => {
  const limits = readFileSync('docs/limits.md', 'utf8');
  const names = Object.values(BOUND_BY).filter((bound) => /^[A-Z_]+$/.test(bound));

  expect(names.filter((name) => !limits.includes(`\`${name}\``))).toEqual([]);
});
