import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { chromiumStep } from './chromium.js';
import { stopCommands } from './command.js';
import { dashboardStep, widgetStep } from './built.js';
import { withLock } from './lock.js';
import { mongodbStep } from './mongodb.js';
import { nodeStep } from './node.js';
import { packagesStep } from './packages.js';
import { pythonStep, schemathesisStep } from './python.js';
import { redisStep } from './redis.js';
import { SetupError, createReport } from './report.js';
import { semanticStep } from './semantic.js';

const STEPS = {
  packages: packagesStep,
  dashboard: dashboardStep,
  widget: widgetStep,
  redis: redisStep,
  mongodb: mongodbStep,
  chromium: chromiumStep,
  python: pythonStep,
  schemathesis: schemathesisStep,
  semantic: semanticStep,
};

/** As in the image: 32 MB for new objects. By default they grow to 128 MB in each process that is busy for a moment. */
const NODE_OPTIONS = '--max-semi-space-size=16';

/**
 * Sets up everything in `needs`, and always Node. Returns the environment for the command: PATH with the right Node
 * first, `NODE_OPTIONS`, `SETUP_FOUND` with the services and programs that were found, and the folder of a cache for
 * compiled code, which saves a third of each start.
 */
export const setUp = async ({ root, needs, verbose }) => {
  const report = createReport();
  const since = Date.now();
  const context = { root, env: { NODE_COMPILE_CACHE: join(root, '.local/compile-cache'), ...process.env } };
  const found = {};
  const texts = [];
  const note = (step, result) => {
    if (result.env) context.env = result.env;
    if (result.found) found[step.key] = result.found;
    texts.push(`${step.name} ${result.text}`);
  };
  const provide = async (step) => (await step.find(context)) ?? fetchIt(step, context, report);
  note(nodeStep, await provide(nodeStep));
  // The model is the largest download and needs only Node, so it is made in parallel with the other steps.
  const wanted = needs.includes('semantic');
  const there = semanticStep.find(context);
  const model = there || !wanted ? there : provideModel(context, report);
  try {
    for (const step of needs.filter((name) => name !== 'semantic').map((name) => STEPS[name])) {
      try {
        note(step, await provide(step));
      } catch (cause) {
        if (!step.optional || !(cause instanceof SetupError)) throw cause;
        report.note(`${step.name}: ${cause.message}`);
      }
    }
  } catch (cause) {
    context.over = true;
    stopCommands('SIGTERM'); // their results are not needed any more
    throw cause;
  }
  const provided = await model;
  if (wanted) note(semanticStep, provided);
  if (verbose || report.didAnything()) {
    report.note(`ready in ${((Date.now() - since) / 1000).toFixed(1)} s: ${texts.join(', ')}`);
  }
  return { found, env: { NODE_OPTIONS, ...context.env, ...provided?.settings, SETUP_FOUND: JSON.stringify(found) } };
};

/**
 * Provides the model for semantic search. A failure is only reported, because the service also runs without the model.
 */
const provideModel = async (context, report) => {
  try {
    return await fetchIt(semanticStep, context, report);
  } catch (cause) {
    const way = 'Answers go by words alone (SETUP_SEMANTIC=off stops trying).';
    if (!context.over) report.note(`${semanticStep.name}: ${cause.message}. ${way}`);
    return { text: 'not here' };
  }
};

const isWritable = (folder) => {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
};

/**
 * Completes a step without changing anything, because the folder is not writable, as in an image. It uses what is
 * installed, or fails.
 */
const asGiven = (step, { root, env }) => {
  const text = step.given?.({ root });
  if (text === undefined)
    throw new SetupError(`${step.name} is missing here, and ${root} cannot be written to to set it up.`);
  return { text, env };
};

const fetchIt = async (step, context, report) =>
  isWritable(context.root) ? fetchLocked(step, context, report) : asGiven(step, context);

const fetchLocked = (step, context, report) =>
  withLock(
    join(context.root, step.lock ?? '.local/setup.lock'),
    () => report.note(`${step.name}: another command is setting up this folder, waiting for it`),
    async () => {
      let result = await step.find(context); // the previous owner of the lock may have done it
      if (result) return result;
      await report.step(step.name, step.doing, async (onLine) => {
        await step.make(context, onLine);
        result = await step.find(context);
        if (!result) throw new SetupError(`${step.name}: fetched, but still not usable`);
        return result.text;
      });
      return result;
    },
  );
