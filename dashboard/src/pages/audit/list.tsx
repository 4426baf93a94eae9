import { Button, NativeSelect, TextInput } from '@mantine/core';
import { withQuery } from '../../api.ts';
import { useAddress } from '../../parts/address.ts';
import { wordsOf } from '../../parts/field-words.ts';
import { Page, Section } from '../../parts/page.tsx';
import { Pager } from '../../parts/pager.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { When } from '../../parts/when.tsx';
import { useRead } from '../../query.ts';
import type { Assistants, AuditLine, AuditTrail, Operators } from '../../types.ts';
import { Icon } from '../../parts/icon.tsx';
import { ACTIONS, actionWords } from './actions.ts';

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-/;
const shortened = (id: string): string => `${id.slice(0, 8)}…`;

/** The names of assistants and people, by their ids. */
type Names = ReadonlyMap<string, string>;

const valueOf = (value: unknown, names: Names): string =>
  String(value)
    .split(', ')
    .map((one) => names.get(one) ?? (ID.test(one) ? shortened(one) : one))
    .join(', ');

const detailsOf = ({ details }: AuditLine, names: Names): string =>
  Object.entries(details)
    .filter(([, value]) => value !== null && value !== '' && value !== false)
    .map(([name, value]) => {
      const words = wordsOf(name).replace(/ id$/, '');
      return value === true ? words : `${words}: ${valueOf(value, names)}`;
    })
    .join(' · ');

type RowProps = { line: AuditLine; names: Names; onTarget: (target: string) => void };

const Row = ({ line, names, onTarget }: RowProps) => (
  <li className="row audit">
    <span className="dim nowrap audit-at">
      <When at={line.at} />
    </span>
    <span className="audit-who clip" title={line.email}>
      {line.actor === 'token' && <Icon name="key" size={14} />} {line.email}
    </span>
    <span className="audit-what">
      <span>{actionWords(line.action)}</span>
      {line.target !== null && (
        <button
          type="button"
          className={names.has(line.target) ? 'as-link' : 'as-link mono small'}
          title={`Show all changes to ${line.target}`}
          onClick={() => onTarget(line.target ?? '')}
        >
          {names.get(line.target) ?? shortened(line.target)}
        </button>
      )}
      <span className="dim break">{detailsOf(line, names)}</span>
    </span>
  </li>
);

const FILTERS = ['operator', 'action', 'target'] as const;

const Audit = () => {
  const { of, set, any, clear, bound } = useAddress(FILTERS, ['target']);
  const operators = useRead<Operators>('/operators');
  const assistants = useRead<Assistants>('/assistants');
  const names = new Map([
    ...(assistants.data?.assistants ?? []).map(({ assistantId, name }) => [assistantId, name] as const),
    ...(operators.data?.operators ?? []).map(({ operatorId, email }) => [operatorId, email] as const),
  ]);
  const query = { operatorId: of('operator'), action: of('action'), target: of('target').trim(), cursor: of('cursor') };
  const read = useRead<AuditTrail>(withQuery('/audit', query), { keep: true });
  return (
    <Page title="Audit trail" description="Who changed what, newest first. Kept for a year.">
      <div className="filters" role="search" aria-label="Filter the trail">
        <NativeSelect
          label="Operator"
          data={[
            { value: '', label: 'Everyone' },
            ...(operators.data?.operators ?? []).map(({ operatorId, email }) => ({ value: operatorId, label: email })),
          ]}
          {...bound('operator')}
        />
        <NativeSelect label="Action" data={[{ value: '', label: 'Any action' }, ...ACTIONS]} {...bound('action')} />
        <TextInput label="Target id" placeholder="Paste an id" classNames={{ input: 'mono' }} {...bound('target')} />
        {any && (
          <Button variant="subtle" color="gray" onClick={clear}>
            Clear
          </Button>
        )}
      </div>
      <Section flush>
        <Shown read={read} rows={8}>
          {({ lines }) =>
            lines.length === 0 ? (
              <Empty icon="scroll" title={any ? 'No matches' : 'No changes yet'} />
            ) : (
              <ul className="rows" aria-label="Audit trail">
                {lines.map((line) => (
                  <Row key={line.auditId} line={line} names={names} onTarget={(target) => set('target', target)} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
      <Pager cursor={of('cursor')} next={read.data?.nextCursor} onGo={(cursor) => set('cursor', cursor)} />
    </Page>
  );
};

export default Audit;
