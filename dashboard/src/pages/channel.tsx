import { Page } from '../parts/page.tsx';

const Channel = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Channel">…</Page>
);

export default Channel;
