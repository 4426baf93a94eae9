import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import * as z from 'zod';

// Asks the npm registry which packages of the running service have known holes. It needs the registry, so no test does it.

/** Advisories that do not concern us, each until the day on which somebody looks at it again. */
const Accepted = z.array(
  z.strictObject({ advisory: z.string().startsWith('GHSA-'), until: z.iso.date(), because: z.string().min(10) }),
);
/** What `npm audit --json` says. A text in `via` names another package of the report. */
const Report = z.object({
  vulnerabilities: z.record(
    z.string(),
    z.object({
      via: z.array(z.union([z.string(), z.object({ url: z.string(), title: z.string(), severity: z.string() })])),
    }),
  ),
});

const [list = '.ci/accepted-advisories.json'] = process.argv.slice(2);
const accepted = Accepted.parse(JSON.parse(readFileSync(list, 'utf8')));
const today = new Date().toISOString().slice(0, 10);
const isAccepted = (advisory: string): boolean =>
  accepted.some((one) => one.advisory === advisory && one.until >= today);

const { stdout, stderr } = spawnSync('npm', ['audit', '--omit=dev', '--json'], { encoding: 'utf8' });
const report = Report.safeParse(JSON.parse(stdout || '{}'));
if (report.success) {
  const all = Object.entries(report.data.vulnerabilities).flatMap(([name, { via }]) =>
    via
      .filter((one) => typeof one !== 'string')
      .map(({ url, title, severity }) => ({ name, title, severity, advisory: url.slice(url.lastIndexOf('/') + 1) })),
  );
  const open = all.filter(({ advisory }) => !isAccepted(advisory));
  for (const { name, title, severity, advisory } of open) console.log(`${severity}: ${name}: ${title} (${advisory})`);
  console.log(`${open.length} open, ${all.length - open.length} accepted`);
  process.exitCode = open.length > 0 ? 1 : 0;
} else {
  console.error(`npm audit failed: ${stderr || stdout}`);
  process.exitCode = 1;
}
