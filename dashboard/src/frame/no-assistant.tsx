import { Page } from '../parts/page.tsx';
import { Empty } from '../parts/states.tsx';

/** The start page of an agent without assistants. */
export const NoAssistant = () => (
  <Page title="No assistant yet">
    <Empty icon="bot" title="You have no assistant">
      An owner chooses your assistants. Ask an owner to give you one; it then appears here.
    </Empty>
  </Page>
);
