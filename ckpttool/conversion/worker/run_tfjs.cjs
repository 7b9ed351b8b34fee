// Runs a TensorFlow.js graph model for run_tfjs.py, with the @tensorflow/tfjs of the user.
//
//   node run_tfjs.cjs PACKAGE MODEL_DIRECTORY
//
// Says in one line of JSON what the model takes and gives. Then each line on stdin is a run,
// answered by a line: {"inputs": [port], "outputs": [name]} -> {"outputs": [port]}, or
// {"error": text}. The elements of a port are in its "file": little-endian, a string as its
// length in four bytes and itself.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');

// Standard output is for answers alone.
console.log = console.info = console.debug = console.error;

const [packagePath, folder] = process.argv.slice(2);
const tf = require(packagePath);

function answer(value) {
  fs.writeSync(1, JSON.stringify(value) + '\n');
}

function bytesOf(file) {
  const data = fs.readFileSync(file); // small ones share one buffer: a copy of their own
  return data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
}

function weightFile(name) {
  const file = path.resolve(folder, name);
  if (!file.startsWith(path.resolve(folder) + path.sep)) {
    throw new Error(`the weight file ${name} is outside the model's directory`);
  }
  return file;
}

async function load() {
  const {weightsManifest, modelTopology, ...more} = JSON.parse(
      fs.readFileSync(path.join(folder, 'model.json'), 'utf8'));
  const weightSpecs = weightsManifest.flatMap((group) => group.weights);
  const files = weightsManifest.flatMap((group) => group.paths);
  const weightData = files.map((name) => bytesOf(weightFile(name)));
  return tf.loadGraphModel(
      {load: async () => ({modelTopology, weightSpecs, weightData, ...more})});
}

const DTYPES = {
  DT_FLOAT: 'float32', DT_DOUBLE: 'float32', DT_HALF: 'float32',
  DT_INT32: 'int32', DT_INT64: 'int32', DT_UINT8: 'int32',
  DT_BOOL: 'bool', DT_STRING: 'string', DT_COMPLEX64: 'complex64',
};

function shapeOf(said) {
  return said && !said.unknownRank ? (said.dim || []).map(({size}) => Number(size)) : undefined;
}

// The ports by the names of the signature, where there is one; else by those of the graph.
// Of an input the graph knows more, of an output the signature.
function ports(tensors, signature) {
  const entries = Object.entries(signature || {});
  if (!entries.length) {
    return tensors.map(({name, dtype, shape}) => ({name, tensor: name, dtype, shape}));
  }
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return entries.map(([name, said]) => {
    const known = byName.get(said.name.split(':')[0]) || {};
    return {
      name,
      tensor: said.name,
      dtype: known.dtype || DTYPES[said.dtype],
      shape: known.shape || shapeOf(said.tensorShape),
    };
  });
}

function elements(dtype, file) {
  const data = bytesOf(file);
  switch (dtype) {
    case 'float32':
    case 'complex64': return new Float32Array(data);
    case 'int32': return new Int32Array(data);
    case 'bool': return new Uint8Array(data);
    case 'string': {
      const view = new DataView(data);
      const texts = [];
      for (let at = 0; at < data.byteLength;) {
        const length = view.getUint32(at, true);
        texts.push(new Uint8Array(data, at + 4, length));
        at += 4 + length;
      }
      return texts;
    }
    default: throw new Error(`an input of type ${dtype} cannot be given`);
  }
}

function tensorOf({dtype, shape, file}) {
  const values = elements(dtype, file);
  if (dtype === 'string' && shape.length === 0) {
    return tf.scalar(values[0], 'string');
  }
  if (dtype === 'complex64') { // pairs of a real and an imaginary part
    const part = (at) => tf.tensor(values.filter((_, place) => place % 2 === at), shape);
    return tf.complex(part(0), part(1));
  }
  return tf.tensor(values, shape, dtype);
}

async function write(tensor, file) {
  const {dtype, shape} = tensor;
  if (dtype === 'string') {
    const parts = [];
    for (const text of await tensor.bytes()) {
      const length = Buffer.alloc(4);
      length.writeUInt32LE(text.length);
      parts.push(length, Buffer.from(text));
    }
    fs.writeFileSync(file, Buffer.concat(parts));
  } else {
    const values = await tensor.data();
    fs.writeFileSync(file, Buffer.from(values.buffer, values.byteOffset, values.byteLength));
  }
  return {dtype, shape};
}

async function run(model, job) {
  const feeds = {};
  for (const port of job.inputs) {
    feeds[port.tensor] = tensorOf(port);
  }
  const found = await model.executeAsync(feeds, job.outputs.map((port) => port.tensor));
  const tensors = Array.isArray(found) ? found : [found];
  const outputs = [];
  for (const [at, tensor] of tensors.entries()) {
    const {name, file} = job.outputs[at];
    outputs.push({name, file, ...await write(tensor, file)});
  }
  tf.dispose([tensors, feeds]);
  return {outputs};
}

async function main() {
  await tf.setBackend('cpu');
  const model = await load();
  const signature = model.modelSignature || {};
  answer({
    inputs: ports(model.inputs, signature.inputs),
    outputs: ports(model.outputs, signature.outputs),
  });
  for await (const line of readline.createInterface({input: process.stdin})) {
    try {
      answer(await run(model, JSON.parse(line)));
    } catch (error) {
      console.error(error);
      answer({error: String(error && error.message || error)});
    }
  }
}

main().catch((error) => {
  console.error(error);
  answer({error: String(error && error.message || error)});
  process.exitCode = 1;
});
