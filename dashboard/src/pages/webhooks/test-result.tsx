import { Link } from 'wouter';
import { at } from '../../api.ts';
import { Icon } from '../../parts/icon.tsx';
import { Section } from '../../parts/page.tsx';
import { isProblem } from '../../problem.ts';
import { useRead } from '../../query.ts';
import type { Delivery } from '../../types.ts';
import { reasonOf } from '../deliveries/outcome.tsx';

type Check = NonNullable<Delivery['test']>['checks'][number];

type Words = { open: string; passed: string; failed: string };

const WORDS: Record<Check['check'], Words> = {
  address: { open: 'Address', passed: 'The address was found', failed: 'The address cannot be used' },
  tls: { open: 'Encryption', passed: 'The connection is encrypted', failed: 'No secure connection' },
  status: { open: 'Answer', passed: 'Your server answered 2xx', failed: 'Your server did not answer 2xx' },
  time: { open: 'Time', passed: 'Your server answered in time', failed: 'Your server did not answer in time' },
};
const ORDER: Check['check'][] = ['address', 'tls', 'status', 'time'];

const nameOf = (name: Check['check'], ok: boolean | null): string => {
  const { open, passed, failed } = WORDS[name];
  return ok === null ? open : ok ? passed : failed;
};

const look = (ok: boolean | null, ended: boolean) => {
  if (ok === true) return { icon: 'check', tone: 'good', words: 'passed' } as const;
  if (ok === false) return { icon: 'cross', tone: 'bad', words: 'failed' } as const;
  return ended
    ? ({ icon: 'minus', tone: 'calm', words: 'not checked' } as const)
    : ({ icon: 'more', tone: 'calm', words: 'waiting' } as const);
};

const Line = ({ name, check, ended }: { name: Check['check']; check: Check | undefined; ended: boolean }) => {
  const { icon, tone, words } = look(check?.ok ?? null, ended);
  return (
    <li>
      <span className="check-mark" data-tone={tone} role="img" aria-label={words}>
        <Icon name={icon} size={14} />
      </span>
      <span className="grow">{nameOf(name, check?.ok ?? null)}</span>
      <span className="dim">{check?.detail}</span>
    </li>
  );
};

export const Checklist = ({ test }: { test: Delivery['test'] | undefined }) => (
  <ul className="checks">
    {ORDER.map((name) => (
      <Line
        key={name}
        name={name}
        check={test?.checks.find(({ check }) => check === name)}
        ended={test?.ended ?? false}
      />
    ))}
  </ul>
);

const wordsFor = (delivery: Delivery | undefined): string => {
  if (!delivery?.test?.ended) return 'On its way…';
  return delivery.test.ok ? 'The test event arrived.' : 'The test event did not get through.';
};

/** The steps of a test event. They are polled until the test has ended. */
export const TestResult = ({ id, deliveryId }: { id: string; deliveryId: string }) => {
  const path = at`/deliveries/${deliveryId}`;
  const read = useRead<Delivery>(path, { every: (delivery) => (delivery?.test?.ended ? false : 700) });
  const problem = read.error && !isProblem(read.error, 404) ? read.error.message : null;
  return (
    <Section
      title="Test event"
      actions={
        <Link className="link small" to={`/assistants/${id}/deliveries/${encodeURIComponent(deliveryId)}`}>
          Open the delivery
        </Link>
      }
    >
      <div role="status" aria-live="polite" className="test-words">
        {problem ?? wordsFor(read.data)}
        {read.data && reasonOf(read.data) !== null && <p className="dim">{reasonOf(read.data)}</p>}
      </div>
      <Checklist test={read.data?.test} />
    </Section>
  );
};
