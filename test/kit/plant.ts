import { registerHooks } from 'node:module';
import { FAULTS } from './planted.ts';

/**
 * Plants a fault in a worker. `node --import` loads this file before the worker's modules. The file rewrites their
 * source while they load, like the planted faults of the tests, so the product itself needs no switch for faults.
 */
const name = decodeURIComponent(new URL(import.meta.url).search.slice(1));
const faults = FAULTS[name];
if (!faults) throw new Error(`there is no fault "${name}"; there are: ${Object.keys(FAULTS).join(', ')}`);

registerHooks({
  load: (url, context, nextLoad) => {
    const loaded = nextLoad(url, context);
    const here = faults.filter(({ file }) => url.endsWith(`/${file}`));
    if (here.length === 0 || !loaded.source) return loaded;
    const text =
      typeof loaded.source === 'string' ? loaded.source : Buffer.from(loaded.source as Uint8Array).toString('utf8');
    const source = here.reduce((code, { file, from, to }) => {
      if (!code.includes(from)) throw new Error(`"${name}": ${file} has changed, so the fault no longer applies`);
      return code.replace(from, () => to);
    }, text);
    return { ...loaded, source };
  },
});
