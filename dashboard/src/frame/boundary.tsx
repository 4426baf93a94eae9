import { Button } from '@mantine/core';
import { Component, type ReactNode } from 'react';
import { Empty } from '../parts/states.tsx';

/** A page that breaks, or whose file is gone since a newer one was installed, says so instead of leaving nothing. */
export class Boundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError() {
    return { failed: true };
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return (
      <div role="alert">
        <Empty
          icon="warning"
          title="This page stopped working"
          action={
            <Button size="xs" onClick={() => window.location.reload()}>
              Reload
            </Button>
          }
        >
          A newer version may be installed. Saved changes are not lost.
        </Empty>
      </div>
    );
  }
}
