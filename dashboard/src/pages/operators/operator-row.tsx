import type { ReactNode } from 'react';
import { Status } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import type { Me, Operator } from '../../types.ts';

const State = ({ one }: { one: Operator }) => {
  if (one.disabled) return <Status tone="calm">Disabled</Status>;
  return one.invited ? <Status tone="warn">Invited</Status> : <Status tone="good">Active</Status>;
};

/** The names of assistants as text. The name of a new assistant may not be loaded yet. */
export const assistantsInWords = (assistantIds: string[] | null, assistants: Me['assistants']): string => {
  if (assistantIds === null) return 'All assistants';
  if (assistantIds.length === 0) return 'No assistant';
  const names = assistants.filter(({ assistantId }) => assistantIds.includes(assistantId)).map(({ name }) => name);
  const others = assistantIds.length - names.length;
  return [...names, ...(others > 0 ? [`${others} more`] : [])].join(', ');
};

const inWords = ({ role, assistantIds }: Operator, assistants: Me['assistants']): string => {
  if (role === 'owner') return 'Owner';
  return `Agent · ${assistantsInWords(assistantIds, assistants)}`;
};

type Props = { one: Operator; me: Me; menu: ReactNode };

export const OperatorRow = ({ one, me, menu }: Props) => (
  <li className="row row-stack">
    <div className="row-main">
      <div className="row-title">
        {one.email}
        {one.operatorId === me.operatorId && <span className="tag">you</span>}
      </div>
      <div className="row-sub">{inWords(one, me.assistants)}</div>
    </div>
    <span className="operator-state">
      <State one={one} />
    </span>
    <span className="operator-seen dim">
      {one.lastSignInAt === null ? (
        'Never signed in'
      ) : (
        <>
          Signed in <When at={one.lastSignInAt} />
        </>
      )}
    </span>
    {menu}
  </li>
);
