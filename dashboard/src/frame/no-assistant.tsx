import { Page } from '../parts/page.tsx';
import { Empty } from '../parts/states.tsx';

/** Where an agent who has none begins. */
export const NoAssistant = () => (
  <Page title="No assistant yet">
    <Empty icon="bot" title="You have no assistant">
      An owner chooses your assistants. Ask an owner to give you one; it then appears here.
    </Empty>
  </Page>
);
