import type { ReactNode } from 'react';
import { Status } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import type { Operator } from '../../types.ts';

const State = ({ one }: { one: Operator }) => {
  if (one.disabled) return <Status tone="calm">Disabled</Status>;
  return one.invited ? <Status tone="warn">Invited</Status> : <Status tone="good">Active</Status>;
};

export const OperatorRow = ({ one, isMe, menu }: { one: Operator; isMe: boolean; menu: ReactNode }) => (
  <li className="row row-stack">
    <div className="row-main">
      <div className="row-title">
        {one.email}
        {isMe && <span className="tag">you</span>}
      </div>
      <div className="row-sub">{one.role === 'owner' ? 'Owner' : 'Agent'}</div>
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
