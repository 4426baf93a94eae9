import { Page } from '../parts/page.tsx';

const Knowledge = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Knowledge">…</Page>
);

export default Knowledge;
