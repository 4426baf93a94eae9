import { Button, NativeSelect, TextInput } from '@mantine/core';
import { Fragment } from 'react';
import { Link } from 'wouter';
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

/** The details that say what a target other than an assistant or a person is. */
const NAMED_BY = ['name', 'title', 'host', 'kind', 'lastFour'];

const nameOfTarget = ({ action, target, details }: AuditLine, names: Names): { name: string; by?: string } | null => {
  const known = target === null ? undefined : names.get(target);
  if (known !== undefined) return { name: known };
  const by = NAMED_BY.find((one) => typeof details[one] === 'string' && details[one] !== '');
  if (by === undefined || !/^(?:key|token|endpoint|canned_reply|alert)\./.test(action)) return null;
  return { name: by === 'lastFour' ? `…${details[by]}` : String(details[by]), by };
};

/** The pages of what details name by its id. */
const PAGES: Readonly<Record<string, string>> = {
  entryId: 'knowledge?entry=',
  sourceId: 'sources/',
  evaluationId: 'evaluate/',
  setId: 'evaluate/sets/',
  deliveryId: 'deliveries/',
};

/** What is removed has no page, and is known by its id alone. */
const isRemoval = ({ action }: AuditLine): boolean => action.endsWith('.remove');

/** An id that leads nowhere and stands for no name says nothing. */
const isSaid = (line: AuditLine, name: string, names: Names): boolean => {
  const value = String(line.details[name]);
  return !ID.test(value) || value.includes(',') || names.has(value) || name in PAGES || isRemoval(line);
};

const Detail = ({ line, name, names }: { line: AuditLine; name: string; names: Names }) => {
  const value = line.details[name];
  const words = wordsOf(name).replace(/ id$/, '');
  if (value === true) return words;
  const page = PAGES[name];
  const assistantId = String(line.details['assistantId'] ?? line.target);
  if (page !== undefined && names.has(assistantId) && !isRemoval(line))
    return (
      <Link className="link" to={`/assistants/${assistantId}/${page}${encodeURIComponent(String(value))}`}>
        {words}
      </Link>
    );
  return `${words}: ${valueOf(value, names)}`;
};

type RowProps = { line: AuditLine; names: Names; onTarget: (target: string) => void };

const Row = ({ line, names, onTarget }: RowProps) => {
  const named = nameOfTarget(line, names);
  const details = Object.entries(line.details).filter(
    ([name, value]) =>
      value !== null && value !== '' && value !== false && name !== named?.by && isSaid(line, name, names),
  );
  return (
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
            className={named ? 'as-link' : 'as-link mono small'}
            title={`Show all changes to ${line.target}`}
            onClick={() => onTarget(line.target ?? '')}
          >
            {named?.name ?? shortened(line.target)}
          </button>
        )}
        <span className="dim break">
          {details.map(([name], at) => (
            <Fragment key={name}>
              {at > 0 && ' · '}
              <Detail line={line} name={name} names={names} />
            </Fragment>
          ))}
        </span>
      </span>
    </li>
  );
};

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
