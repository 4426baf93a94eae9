import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { alternate, type Contender, costOf, loadFigures, runRound } from '../support/contender.ts';
import { openCounters } from '../support/counters.ts';
import { type Part, ratioOf } from '../support/figures.ts';
import { MEASURED, openParley, QUESTIONS } from '../../test/kit/parley.ts';
import { launch, startRealProcess } from '../../test/kit/processes.ts';

const FOLDER = join(import.meta.dirname, '../botbuilder');
const IN_FLIGHT = 50;
const INSTALL_WITHIN_MS = 180_000;

/** Installs the 170 packages of Bot Framework on first use, so that users of Parley do not install them. */
const install = async (): Promise<void> => {
  const lock = readFileSync(join(FOLDER, 'package-lock.json'), 'utf8');
  const stamp = join(FOLDER, 'node_modules/.installed-lock');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return;
  const started = process.env['npm_execpath'] ?? '';
  const npm = basename(started) === 'npm-cli.js' ? [process.execPath, started] : ['npm'];
  const [program = 'npm', ...own] = npm;
  const args = [...own, 'install', '--no-save', '--no-audit', '--no-fund', '--ignore-scripts'];
  const { ended } = launch(program, args, { cwd: FOLDER, timeout: INSTALL_WITHIN_MS });
  const { status } = await ended;
  if (status !== 0) throw new Error(`botbuilder could not be installed: npm ended with ${status}`);
  writeFileSync(stamp, lock);
};

/** Measures Bot Framework, which keeps its data in memory, under the same load as the turns bench. */
export const botbuilder: Part = async (options, say) => {
  say('botbuilder: installing it if needed');
  await install();
  say(`botbuilder: ${IN_FLIGHT} in flight`);
  const parley = await openParley('botbuilder');
  const { services } = parley;
  const counters = await openCounters(services);
  const env = { NODE_ENV: 'production' };
  const bot = await startRealProcess('api', env, { ...MEASURED, file: 'bench/botbuilder/bot.js' });
  const [api, worker] = [await parley.start('API'), await parley.start('reply worker')];
  const contenders: Contender[] = [
    {
      name: 'botbuilder',
      target: { kind: 'bot', port: bot.port, apiKey: 'none', sessionPrefix: 'bench' },
      pids: { botbuilder: bot.pid },
    },
    {
      name: 'whole',
      target: { kind: 'chat', port: api.port, ...(await parley.addAssistant()) },
      pids: { API: api.pid, 'reply worker': worker.pid, ...services.pids },
    },
  ];
  const run = { messages: QUESTIONS, counters, inFlight: IN_FLIGHT };
  for (const contender of contenders) await runRound({ ...run, contender }, { seconds: 1.5, warmUpSeconds: 0.5 });
  const results = await alternate(contenders, (contender) => runRound({ ...run, contender }, options), options.rounds);

  const [theirs = [], ours = []] = [results.get('botbuilder'), results.get('whole')];
  const rates = (rounds: typeof ours): number[] => rounds.map(({ perSecond }) => perSecond);
  return {
    figures: [
      ...loadFigures('botbuilder.bot', `botbuilder in memory, ${IN_FLIGHT} in flight`, theirs),
      ...loadFigures('botbuilder.whole', `Parley whole beside it, ${IN_FLIGHT} in flight`, ours),
      ratioOf('botbuilder.ratio', 'Parley whole beside botbuilder', rates(ours), rates(theirs)),
    ],
    detail: { costs: Object.fromEntries([...results].map(([name, rounds]) => [name, costOf(rounds)])) },
  };
};
