import { Button, Group, NativeSelect, TextInput } from '@mantine/core';
import { useSearchParams } from 'wouter';
import { withQuery } from '../../api.ts';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { AuditLine, AuditTrail, Operators } from '../../types.ts';
import { ACTIONS, actionWords } from './actions.ts';

const detailsOf = ({ details }: AuditLine): string =>
  Object.entries(details)
    .filter(([, value]) => value !== null && value !== '')
    .map(([name, value]) => `${name}: ${String(value)}`)
    .join(' · ');

const Row = ({ line, onTarget }: { line: AuditLine; onTarget: (target: string) => void }) => (
  <li className="row audit">
    <span className="dim nowrap audit-at">
      <When at={line.at} />
    </span>
    <span className="audit-who clip" title={line.email}>
      {line.email}
    </span>
    <span className="audit-what">
      <span>{actionWords(line.action)}</span>
      {line.target !== null && (
        <button
          type="button"
          className="as-link mono small"
          title={`All that was done to ${line.target}`}
          onClick={() => onTarget(line.target ?? '')}
        >
          {line.target.slice(0, 13)}…
        </button>
      )}
      <span className="dim break">{detailsOf(line)}</span>
    </span>
  </li>
);

const Audit = () => {
  const [params, setParams] = useSearchParams();
  const of = (name: string): string => params.get(name) ?? '';
  const set = (name: string, value: string): void =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        if (name !== 'cursor') next.delete('cursor');
        if (value === '') next.delete(name);
        else next.set(name, value);
        return next;
      },
      { replace: name === 'target' },
    );
  const operators = useRead<Operators>('/operators');
  const query = { operatorId: of('operator'), action: of('action'), target: of('target').trim(), cursor: of('cursor') };
  const read = useRead<AuditTrail>(withQuery('/audit', query), { keep: true });
  const any = ['operator', 'action', 'target'].some((name) => of(name) !== '');
  return (
    <Page title="Audit trail" description="Who changed what, newest first. Kept for a year.">
      <div className="filters" role="search" aria-label="Filter the trail">
        <NativeSelect
          label="Operator"
          data={[
            { value: '', label: 'Everybody' },
            ...(operators.data?.operators ?? []).map(({ operatorId, email }) => ({ value: operatorId, label: email })),
          ]}
          value={of('operator')}
          onChange={(event) => set('operator', event.currentTarget.value)}
        />
        <NativeSelect
          label="Action"
          data={[{ value: '', label: 'Everything' }, ...ACTIONS]}
          value={of('action')}
          onChange={(event) => set('action', event.currentTarget.value)}
        />
        <TextInput
          label="Done to (id)"
          placeholder="Paste an id"
          classNames={{ input: 'mono' }}
          value={of('target')}
          onChange={(event) => set('target', event.currentTarget.value)}
        />
        {any && (
          <Button variant="subtle" color="gray" onClick={() => setParams({})}>
            Clear
          </Button>
        )}
      </div>
      <Section flush>
        <Shown read={read} rows={8}>
          {({ lines }) =>
            lines.length === 0 ? (
              <Empty icon="scroll" title={any ? 'Nothing matches' : 'Nothing was changed yet'} />
            ) : (
              <ul className="rows" aria-label="Audit trail">
                {lines.map((line) => (
                  <Row key={line.auditId} line={line} onTarget={(target) => set('target', target)} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      {(of('cursor') !== '' || read.data?.nextCursor) && (
        <Group justify="space-between">
          <Button variant="default" disabled={of('cursor') === ''} onClick={() => set('cursor', '')}>
            Newest
          </Button>
          <Button
            variant="default"
            disabled={!read.data?.nextCursor}
            onClick={() => set('cursor', read.data?.nextCursor ?? '')}
          >
            Older
          </Button>
        </Group>
      )}
    </Page>
  );
};

export default Audit;
