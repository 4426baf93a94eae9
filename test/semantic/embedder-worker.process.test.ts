import { expect, test } from 'vitest';
import { runAdmin } from '../support/admin.ts';
import { eventually } from '../support/eventually.ts';
import { embedByLetters, openEmbeddingsService } from '../kit/provider.ts';
import { isLocalModelFor, modelFolder } from '../kit/semantic.ts';
import { useStack } from '../support/stack.ts';

/** The local model if this machine supports it, else a fake embeddings service. */
const service = isLocalModelFor ? null : await openEmbeddingsService();
service?.behave(embedByLetters);
const env: Record<string, string> = service
  ? { EMBEDDINGS_URL: service.baseUrl, EMBEDDINGS_MODEL: 'by-letters' }
  : { SEMANTIC_DIR: modelFolder() };

const stack = useStack({ env, replyWorkers: 0, deliveryWorkers: 0 });

type Report = { problems: string[]; semantic: { available: boolean; detail: string } };

const doctor = async (more: Record<string, string> = {}): Promise<Report> => {
  const { stdout } = await runAdmin({ ...stack.env, ...more }, ['doctor', '--json']);
  return JSON.parse(stdout) as Report;
};

test('a reply worker opens the model, logs it, counts its use, and closes it at its own end', async () => {
  const worker = await stack.startReplyWorker();

  // A busy machine may let the first question wait too long, which is then answered by words.
  const vectors = await eventually(async () => {
    const made = await worker.embedder.embed(['can I bring my dog'], 'query', { holder: 'a' });
    expect(made).not.toBeNull();
    return made;
  });
  await worker.embedder.embed(['can I bring my dog'], 'query', { holder: 'a' });
  const metrics = await (await fetch(`http://127.0.0.1:${worker.healthPort}/metrics`)).text();
  await worker.close();
  const afterwards = await worker.embedder.embed(['can I bring my cat'], 'query', { holder: 'a' });

  expect(vectors).toHaveLength(1);
  expect(stack.logs.filter(({ msg }) => msg === 'semantic search is available')).toEqual([
    expect.objectContaining({ model: expect.any(String) }),
  ]);
  expect(metrics).toContain('parley_embeddings_total{kind="query",result="made"} 1');
  expect(metrics).toContain('parley_embeddings_total{kind="query",result="cached"} 1');
  expect(afterwards).toBeNull();
});

test('the doctor reports the model, and a missing one is a problem only if it was configured', async () => {
  // On a busy machine the model may take longer to open than it may.
  const well = await eventually(async () => {
    const report = await doctor({ SEMANTIC: 'on' });
    expect(report.semantic.available).toBe(true);
    return report;
  });
  const off = await doctor({ SEMANTIC: 'off' });
  const missing = await doctor({ SEMANTIC: 'on', SEMANTIC_DIR: '/nowhere', EMBEDDINGS_URL: '', EMBEDDINGS_MODEL: '' });

  expect(well.semantic).toEqual({ available: true, detail: expect.any(String) });
  expect(well.problems.join()).not.toContain('Semantic');
  expect(off.semantic).toEqual({ available: false, detail: 'off (SEMANTIC=off)' });
  expect(off.problems.join()).not.toContain('Semantic');
  expect(missing.problems.join()).toContain('Semantic search is on (SEMANTIC=on) but not available: ');
});
