import { Page } from '../parts/page.tsx';

const Assistants = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Assistants">…</Page>
);

export default Assistants;
