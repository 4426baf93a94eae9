import { Page } from '../parts/page.tsx';

const Deliveries = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Deliveries">…</Page>
);

export default Deliveries;
