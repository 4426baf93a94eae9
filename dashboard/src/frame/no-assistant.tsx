import { Page } from '../parts/page.tsx';
import { Empty } from '../parts/states.tsx';

/** Where an agent who has none begins. */
export const NoAssistant = () => (
  <Page title="No assistant yet">
    <Empty icon="bot" title="You have no assistant">
      An owner chooses which assistants you answer for and try. Ask them for one; it is here as soon as you have it.
    </Empty>
  </Page>
);
