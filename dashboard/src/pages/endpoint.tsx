import { Page } from '../parts/page.tsx';

const Endpoint = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Endpoint">…</Page>
);

export default Endpoint;
