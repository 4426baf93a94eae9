import { Button } from '@mantine/core';
import { Component, type ReactNode } from 'react';
import { Empty } from '../parts/states.tsx';

/** Shows an error if a page fails to render, or if its file was removed by an upgrade. */
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
