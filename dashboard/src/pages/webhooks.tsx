import { Page } from '../parts/page.tsx';

const Webhooks = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Webhooks">…</Page>
);

export default Webhooks;
