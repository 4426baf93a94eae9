import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { assistantModels, type StoredAssistant } from '../../src/assistants/assistant.ts';
import { collectionOf } from '../../src/platform/mongo/mongo.ts';
import { OPERATIONS } from '../../src/api/operator-routes.ts';
import { request } from '../support/builders.ts';
import { addressOf } from '../kit/operations.ts';
import { anOperator } from '../support/operator-client.ts';
import { collectionIn, examinedBy, profileStatements } from '../support/profile.ts';
import { useStack } from '../support/stack.ts';

// Without workers, whose rounds concern all assistants.
const stack = useStack({ replyWorkers: 0, deliveryWorkers: 0 });
const OTHERS = 300;

test('a caller with one empty assistant reads nothing of others, at any list', async () => {
  const owner = await anOperator(stack);
  const { assistantId: empty } = await stack.service.assistants.createAssistant({ name: 'Empty' });
  const others = collectionOf<StoredAssistant>(assistantModels(stack.service.mongo).assistants);
  const stored = await others.findOne({ _id: empty });
  const many = Array.from({ length: OTHERS }, () => ({ ...stored, _id: randomUUID() }) as StoredAssistant);
  await others.insertMany(many);
  const body = { name: 'a program', scope: 'read', assistantIds: [empty] };
  const { secret: bearer } = (await owner.post<{ secret: string }>('/tokens', body)).body;
  const lists = OPERATIONS.filter(
    ({ method, resource, peopleOnly, stream, contentType }) =>
      method === 'get' &&
      peopleOnly !== true &&
      !stream &&
      !contentType &&
      (resource === 'filtered' || resource === 'assistant'),
  );

  const names = ['sourceId', 'missId', 'entryId', 'setId', 'evaluationId'];
  const unknown = Object.fromEntries(names.map((name) => [name, randomUUID()]));
  const told: Record<string, number> = {};
  const sent = await profileStatements(stack, async () => {
    for (const one of lists) {
      const path = addressOf(one, { id: empty, ...unknown });
      told[one.id] = (await request(`${stack.url}/operator/v1${path}`, { bearer })).status;
    }
  });

  expect(told).toMatchObject({ listAssistants: 200, readInbox: 200, listSources: 200, getOverview: 200 });
  const ofOthers = sent.filter((one) => examinedBy(one) > OTHERS / 2);
  expect(ofOthers.map((one) => [collectionIn(one), one.command['filter'], examinedBy(one)])).toEqual([]);
});
