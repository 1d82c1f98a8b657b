declare const graphology: any;
declare const Sigma: any;
