import { Button } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { Allowed } from '../../parts/allowance.tsx';
import { Section } from '../../parts/page.tsx';
import { Status } from '../../parts/status.tsx';
import { dateAndTime, When } from '../../parts/when.tsx';
import type { ApiKey, Limits } from '../../types.ts';

type RowProps = { one: ApiKey; quota?: Limits['keys'][number] | undefined; menu: ReactNode };

export const KeyRow = ({ one, quota, menu }: RowProps) => (
  <li className="row row-stack">
    <div className="row-main">
      <div className="row-title">{one.name}</div>
      <div className="row-sub mono">sk_…{one.lastFour}</div>
      {one.overlapUntil !== null && (
        <div className="row-sub">The old key works until {dateAndTime(one.overlapUntil)}</div>
      )}
      {quota && <Allowed one={quota} of="messages" />}
    </div>
    <div className="key-use dim">
      {one.revokedAt === null ? (
        one.lastUsedAt === null ? (
          'Never used'
        ) : (
          <>
            Used <When at={one.lastUsedAt} />
          </>
        )
      ) : (
        <Status tone="calm">
          Revoked <When at={one.revokedAt} />
        </Status>
      )}
    </div>
    <div className="key-limit dim num">{one.limitPerMinute} per minute</div>
    <div className="key-made dim">
      Created <When at={one.createdAt} />
    </div>
    {menu}
  </li>
);

/** Revoked keys, collapsed. */
export const RevokedKeys = ({ keys }: { keys: ApiKey[] }) => {
  const [shown, setShown] = useState(false);
  if (keys.length === 0) return null;
  return (
    <div>
      <Button variant="subtle" color="gray" size="xs" aria-expanded={shown} onClick={() => setShown(!shown)}>
        {shown ? 'Hide' : 'Show'} revoked keys ({keys.length})
      </Button>
      {shown && (
        <Section flush>
          <ul className="rows" aria-label="Revoked keys">
            {keys.map((one) => (
              <KeyRow key={one.keyId} one={one} menu={null} />
            ))}
          </ul>
        </Section>
      )}
    </div>
  );
};
