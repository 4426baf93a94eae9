import { Page } from '../parts/page.tsx';

const Audit = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Audit">…</Page>
);

export default Audit;
