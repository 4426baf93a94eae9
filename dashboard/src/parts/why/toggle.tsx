import { Button, Collapse } from '@mantine/core';
import { type ReactNode, useState } from 'react';

/** The button that shows why a reply was chosen. `children` render only while the section is open. */
export const WhyToggle = ({ children }: { children: () => ReactNode }) => {
  const [opened, setOpened] = useState(false);
  return (
    <div>
      <Button
        variant="subtle"
        color="gray"
        size="compact-xs"
        aria-expanded={opened}
        onClick={() => setOpened(!opened)}
        className="why"
      >
        {opened ? 'Hide why' : 'Why this reply'}
      </Button>
      <Collapse expanded={opened}>{opened && children()}</Collapse>
    </div>
  );
};
