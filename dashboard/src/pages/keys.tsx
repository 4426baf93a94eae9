import { Page } from '../parts/page.tsx';

const Keys = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Keys">…</Page>
);

export default Keys;
