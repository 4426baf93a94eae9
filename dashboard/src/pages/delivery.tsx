import { Page } from '../parts/page.tsx';

const Delivery = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Delivery">…</Page>
);

export default Delivery;
