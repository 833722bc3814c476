#!/bin/bash
#SBATCH --array=0-100:25
